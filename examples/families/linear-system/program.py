from fractions import Fraction


def solve(one, two):
    (a, b, e), (c, d, f) = one, two
    determinant = a * d - b * c
    if determinant == 0:
        return None
    return [Fraction(e * d - b * f, determinant), Fraction(a * f - e * c, determinant)]
