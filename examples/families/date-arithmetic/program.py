from datetime import timedelta


def solve(days, start):
    return start + timedelta(days=days)
