def check(answer, one, two):
    if answer is None:
        return one[0] * two[1] == one[1] * two[0]
    x, y = answer
    return all(row[0] * x + row[1] * y == row[2] for row in (one, two)) and (
        one[0] * two[1] != one[1] * two[0]
    )
