from fractions import Fraction


def check(answer, miles, factor, places):
    exact = Fraction(miles) * Fraction(factor)
    scaled = Fraction(answer) * 10**places
    return (
        scaled.denominator == 1
        and -answer.as_tuple().exponent == places
        and abs(Fraction(answer) - exact) * 2 * 10**places <= 1
        and (abs(Fraction(answer) - exact) * 2 * 10**places < 1 or scaled % 2 == 0)
    )
