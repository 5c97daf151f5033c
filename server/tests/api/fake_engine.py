"""A stand-in for the engine process, at the wire: speaks `protocol`, computes nothing.

It generates the tokens of its prompt again and again, one per step; answer k of a request begins with the prompt's token
k. It misbehaves as FAKE_ENGINE (JSON) says:
`delay` seconds per step, `max_running` requests at once, `die_with` that many running (after a few steps, exit code 9,
no word), `hang_up_with` that many running (it closes its socket, and stays), `deaf` (once it is ready it reads nothing),
`stall_with` that many requests (it goes on beating, and makes no step), `lose_after` so many tokens of a request (as if the
scheduler had begun anew), `load_error` [message, exit code],
`stay_loading`, `load_time` seconds. `speak`: instead of the prompt it says what stands in the prompt between `SAY<<<` and
`>>>END`, and then ends.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time

from tokenizers import Tokenizer

from llmendpoint_server import protocol
from llmendpoint_server.core.counters import Counters
from llmendpoint_server.core.request import FinishReason, Request, RequestOutput, TokenLogprobs

OPTIONS = json.loads(os.environ.get("FAKE_ENGINE", "{}"))
MAX_MODEL_LEN = 2048


def ends(request_id: str, index: int | None, name: tuple[str, int]) -> bool:
    return name[0] == request_id and index in (None, name[1])


def scored(
    request: Request, token: int, finish: FinishReason | None, index: int, first: bool
) -> RequestOutput:
    """A token has log probability -1, the first alternative is token 5 with -0.5, the second token 6 with -1.5, and so on."""
    sampling = request.sampling

    def score(token: int, most: int) -> TokenLogprobs:
        return TokenLogprobs(token, -1.0, tuple((5 + at, -0.5 - at) for at in range(most)))

    said = () if sampling.logprobs is None else (score(token, sampling.logprobs),)
    told: tuple[TokenLogprobs | None, ...] = ()
    if sampling.prompt_logprobs is not None and first and not index:
        told = (None, *(score(one, sampling.prompt_logprobs) for one in request.prompt[1:]))
    return RequestOutput(request.id, (token,), finish, logprobs=said, index=index, prompt_logprobs=told)


class FakeEngine:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.reader = protocol.EngineReader()
        self.limit = 256
        self.vocab_size = 1761
        self.said: dict[str, tuple[int, ...]] = {}
        self.running: dict[tuple[str, int], tuple[Request, int]] = {}
        """by id and answer: the request, and how many tokens it has"""
        self.waiting: list[tuple[Request, int]] = []
        self.counters = Counters()
        self.draining = False

    def send(self, *messages: protocol.FromEngine) -> None:
        self.connection.sendall(protocol.encode(*messages))

    def take(self, message: protocol.ToEngine) -> None:
        match message:
            case protocol.Configure():
                self.limit = message.max_queued_requests
                self.load(message)
            case protocol.AddRequest(request=request):
                if OPTIONS.get("speak"):
                    self.said[request.id] = self.find_said(request.prompt)
                full = len(self.waiting) + len(self.running) >= self.limit + self.max_running
                if self.draining or full:
                    refusal = RequestOutput(
                        request.id,
                        (),
                        FinishReason.REJECTED,
                        detail="1 requests are waiting already",
                        retry_after=2.4,
                    )
                    self.send(protocol.StepOutput((refusal,)))
                else:
                    self.waiting += [(request, index) for index in range(request.n)]
            case protocol.AbortRequest(request_id, index):
                for name in [name for name in self.running if ends(request_id, index, name)]:
                    del self.running[name]
                self.waiting = [
                    one for one in self.waiting if not ends(request_id, index, (one[0].id, one[1]))
                ]
            case protocol.LoadAdapter() | protocol.UnloadAdapter():
                self.send(protocol.AdapterChanged(message.call, generation=message.call))
            case protocol.Drain():
                self.draining = True

    def find_said(self, prompt: tuple[int, ...]) -> tuple[int, ...]:
        """With an end token of its own, which has no text."""
        text = self.tokenizer.decode(prompt, skip_special_tokens=False)
        asked = text.rpartition("SAY<<<")[2].partition(">>>END")[0]
        return (*self.tokenizer.encode(asked, add_special_tokens=False).ids, 2)

    max_running = OPTIONS.get("max_running", 16)

    def load(self, configure: protocol.Configure) -> None:
        if "load_error" in OPTIONS:
            message, code = OPTIONS["load_error"]
            self.send(protocol.StateChanged("failed", message, code))
            sys.exit(code)
        self.send(protocol.StateChanged("loading", "reading weights"))
        if OPTIONS.get("stay_loading"):
            return
        time.sleep(OPTIONS.get("load_time", 0))
        if OPTIONS.get("speak"):
            self.tokenizer = Tokenizer.from_file(configure.model_path + "/tokenizer.json")
            self.vocab_size = self.tokenizer.get_vocab_size()
        limit = configure.max_model_len or MAX_MODEL_LEN
        self.send(
            protocol.StateChanged("warming"),
            protocol.Loaded(
                "Fake", limit, 16, self.limit, self.vocab_size, (2, 0), "cpu", "float32", 64, 16, 0.0
            ),
            protocol.StateChanged("ready"),
        )
        if OPTIONS.get("deaf"):
            time.sleep(600)

    def step(self) -> None:
        while self.waiting and len(self.running) < self.max_running:
            request, index = self.waiting.pop(0)
            self.running[request.id, index] = (request, 0)
        self.counters.steps += 1
        started = [done for _, done in self.running.values() if done > 5]
        if len(started) >= OPTIONS.get("die_with", float("inf")):
            os._exit(9)
        if len(started) >= OPTIONS.get("hang_up_with", float("inf")):
            self.connection.close()
            time.sleep(600)
        outputs = []
        for name, (request, done) in list(self.running.items()):
            index = name[1]
            said = self.said.get(request.id, request.prompt)
            spoken = request.id in self.said
            token = said[(done if spoken else done + index) % len(said)]
            finish = FinishReason.LENGTH if done + 1 >= request.sampling.max_tokens else None
            if token in request.sampling.stop_token_ids or (spoken and done + 1 == len(said)):
                finish = FinishReason.STOP
            if done == OPTIONS.get("lose_after"):
                detail = "The engine lost this request: KeyError."
                outputs.append(
                    RequestOutput(request.id, finish=FinishReason.LOST, detail=detail, index=index)
                )
                del self.running[name]
                continue
            outputs.append(scored(request, token, finish, index, first=not done))
            self.running[name] = (request, done + 1)
            if finish:
                del self.running[name]
        self.counters.generated_tokens += sum(len(output.tokens) for output in outputs)
        self.send(protocol.StepOutput(tuple(outputs)), self.stats())
        time.sleep(OPTIONS.get("delay", 0.0))

    def stats(self) -> protocol.Stats:
        return protocol.Stats(len(self.waiting), len(self.running), counters=self.counters)

    def run(self) -> None:
        while True:
            busy = bool(self.running or self.waiting)
            readable, _, _ = select.select([self.connection], [], [], 0.0 if busy else 0.2)
            if readable:
                data = self.connection.recv(65536)
                if not data:
                    return
                for message in self.reader.feed(data):
                    self.take(message)
            requests = len(self.running) + len(self.waiting)
            if requests and requests < OPTIONS.get("stall_with", float("inf")):
                self.step()
            elif requests:
                self.send(self.stats())
                time.sleep(0.01)
            else:
                self.send(self.stats())


if __name__ == "__main__":
    FakeEngine(socket.socket(fileno=int(sys.argv[sys.argv.index("--socket-fd") + 1]))).run()
