def check(answer, a, b):
    divisor, multiple = answer
    common = [n for n in range(1, min(a, b) + 1) if a % n == 0 and b % n == 0]
    return divisor == max(common) and multiple == next(
        n for n in range(a, a * b + 1, a) if n % b == 0
    )
