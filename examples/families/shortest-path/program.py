import heapq


def solve(start, goal, roads):
    waiting, done = [(0, start)], set()
    while waiting:
        length, place = heapq.heappop(waiting)
        if place == goal:
            return length
        if place in done:
            continue
        done.add(place)
        for a, b, road in roads:
            for here, there in ((a, b), (b, a)):
                if here == place:
                    heapq.heappush(waiting, (length + road, there))
    return -1
