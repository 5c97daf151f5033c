"""Imports the service once and forks it as often as it is told: a line of arguments in, a pid out, later the status."""

import json
import os
import sys
import threading

from llmendpoint_batch import __main__ as program


def main() -> None:
    for text in sys.stdin:
        pid = os.fork()
        if pid == 0:
            sys.stdin.close()
            sys.argv = ["llmendpoint-batch", *json.loads(text)]
            program.main()
            os._exit(0)
        print(pid, flush=True)
        threading.Thread(target=report, args=(pid,), daemon=True).start()


def report(pid: int) -> None:
    print(os.waitpid(pid, 0)[1], flush=True)


if __name__ == "__main__":
    main()
