def solve(first, step, terms):
    return terms * (2 * first + (terms - 1) * step) // 2
