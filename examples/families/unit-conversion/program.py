from decimal import Context, Decimal


def solve(miles, factor, places):
    return (miles * factor).quantize(Decimal(1).scaleb(-places), context=Context(prec=60))
