from math import comb


def solve(chosen, books):
    return comb(books, chosen)
