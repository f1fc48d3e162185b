def check(answer, days, start):
    lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    year, month, day = start.year, start.month, start.day
    for _ in range(days):
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        day += 1
        if day > lengths[month - 1] + (leap and month == 2):
            day, month = 1, month + 1
        if month > 12:
            month, year = 1, year + 1
    return (answer.year, answer.month, answer.day) == (year, month, day)
