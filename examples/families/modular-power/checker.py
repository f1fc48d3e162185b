def check(answer, base, exponent, modulus):
    found = 1 % modulus
    for _ in range(exponent):
        found = found * base % modulus
    return answer == found
