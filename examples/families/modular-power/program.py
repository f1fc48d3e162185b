def solve(base, exponent, modulus):
    return pow(base, exponent, modulus)
