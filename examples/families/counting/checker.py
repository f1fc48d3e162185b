def check(answer, chosen, books):
    row = [1]
    for _ in range(books):
        row = [1, *(row[n] + row[n + 1] for n in range(len(row) - 1)), 1]
    return answer == (row[chosen] if chosen <= books else 0)
