"""Many clients at once, until all frames are sent or something is wrong."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

AT_ONCE = 4

# Sends about as many frames as it is told to, over a connection of its own.
Visit = Callable[[int], None]


def crowd(frames: int, most_at_a_visit: int, seed: str, visitor: Callable[[random.Random], Visit]) -> None:
    """Each client is made by `visitor`, with numbers of its own; the first problem of one is raised when all have ended."""
    problems: list[BaseException] = []
    left = frames
    lock = threading.Lock()

    def work(number: int) -> None:
        nonlocal left
        rng = random.Random(f"{seed}-{number}")
        try:
            visit = visitor(rng)
            while True:
                count = rng.randrange(1, most_at_a_visit)
                with lock:
                    if left <= 0 or problems:
                        return
                    left -= count
                visit(count)
        except BaseException as error:
            problems.append(error)

    clients = [threading.Thread(target=work, args=[number]) for number in range(AT_ONCE)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    if problems:
        raise problems[0]
