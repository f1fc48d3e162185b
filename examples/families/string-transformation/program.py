def solve(text):
    return " ".join(reversed(text.split(" "))).upper()
