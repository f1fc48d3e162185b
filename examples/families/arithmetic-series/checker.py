def check(answer, first, step, terms):
    return type(answer) is int and answer == sum(first + n * step for n in range(terms))
