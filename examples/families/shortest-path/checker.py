def check(answer, start, goal, roads):
    far = {start: 0}
    for _ in range(2 * len(roads) + 2):
        for a, b, road in roads:
            for here, there in ((a, b), (b, a)):
                if here in far and far[here] + road < far.get(there, float("inf")):
                    far[there] = far[here] + road
    return answer == far.get(goal, -1)
