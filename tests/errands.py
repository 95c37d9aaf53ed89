"""Work for processes of their own, which must be able to import it."""

import os
import time


def work(item: str) -> str:
    if item == "die":
        os._exit(9)
    if item == "sleep":
        time.sleep(60)
    if item == "fail":
        raise ValueError(item)
    if item == "slow":
        time.sleep(0.3)
    return item.upper()
