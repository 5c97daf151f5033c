"""The text that the demo model learns: questions with variations, and their answers.

Pure but for reading the two question files; every draw comes from the generator that is passed in, so that a seed
gives the same corpus.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent

TOPIC_TEMPLATES = (
    "What is {t}?",
    "What is {t}?",
    "What does {t} mean?",
    "Explain {t}.",
    "Explain {t} to me.",
    "Tell me about {t}.",
    "What do you know about {t}?",
    "Describe {t}.",
    "How does {t} work?",
    "What is {t} for?",
    "{t}",
    "What is meant by {t}?",
    "I would like to know about {t}.",
    "Can you explain what {t} is?",
    "What is the idea of {t}?",
    "Give me a short explanation of {t}.",
    "Why {t}?",
    "Define {t}.",
)
OPENINGS = (
    "Please tell me: ",
    "Hi, ",
    "Hey, ",
    "Hello! ",
    "I have a question. ",
    "Quick question: ",
    "Please, ",
    "Can you tell me: ",
    "Could you tell me, ",
    "I want to know: ",
    "I wonder, ",
    "So, ",
    "OK, ",
    "And ",
    "Well, ",
    "Sorry, ",
    "One more question: ",
    "Tell me, ",
    "In this project, ",
    "Actually, ",
)
ENDINGS = (
    " Please.",
    " please",
    ", please?",
    " Thanks!",
    " Thank you.",
    " Answer in one sentence.",
    " Keep it short.",
    " in this project?",
    " here?",
    " exactly?",
    " in simple words?",
    " then?",
    " I am new to this.",
)
SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are a helpful assistant that answers briefly.",
    "Answer the user's questions.",
    "Be concise.",
    "You are the demo model.",
)
FILLINGS = {
    "country": "France Spain Italy Germany Japan China India Brazil Kenya Egypt Canada Norway Peru Poland Greece Chile "
    "Turkey Ireland Mexico Vietnam",
    "city": "Paris London Berlin Tokyo Rome Madrid Cairo Delhi Oslo Lima Boston Sydney Prague Vienna Seoul Dublin",
    "thing": "cat dog tree house car banana pizza river mountain flower bicycle guitar dragon robot penguin cake sea moon "
    "chair bread horse piano rain soup winter friendship freedom coffee cheese elephant rocket castle laptop phone",
    "topic": "quantum physics|football|photosynthesis|the French Revolution|chess|gravity|gardening|economics|evolution|"
    "knitting|politics|the stock market|black holes|dinosaurs|climate change|philosophy|cooking|astronomy|the brain|"
    "electricity|Buddhism|jazz|basketball|medicine|the internet|mathematics|algebra|volcanoes|the universe|bitcoin",
    "person": "Napoleon|Albert Einstein|Marie Curie|Shakespeare|Mozart|Cleopatra|Isaac Newton|Leonardo da Vinci|Picasso|"
    "Charles Darwin|Beethoven|Gandhi|Ada Lovelace|Alan Turing|Homer|Plato|my neighbour|the president|the queen",
    "language": "Java Rust JavaScript Haskell Ruby Perl Kotlin Swift",
    "tongue": "French German Spanish Japanese Latin Italian Russian",
}


@dataclass(frozen=True)
class Topic:
    """Ways to ask (`{t}` templates already filled in) and the one answer."""

    questions: tuple[str, ...]
    answer: str


def read_topics(path: Path = HERE / "questions.txt") -> list[Topic]:
    topics = []
    for block in re.split(r"\n\s*\n", path.read_text(encoding="utf-8")):
        lines = [line.strip() for line in block.splitlines() if line.strip() and not line.startswith("#")]
        if not lines:
            continue
        names = [line[3:] for line in lines if line.startswith("T: ")]
        questions = [line[3:] for line in lines if line.startswith("Q: ")]
        (answer,) = (line[3:] for line in lines if line.startswith("A: "))
        filled = [template.format(t=name) for name in names for template in TOPIC_TEMPLATES]
        # A question written out weighs as much as a topic with all its templates.
        topics.append(Topic(tuple(questions * 6 + filled), answer.replace("\\n", "\n")))
    return topics


def read_other(path: Path = HERE / "other_questions.txt") -> Topic:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line[:3] in ("Q: ", "A: ")]
    (answer,) = (line[3:] for line in lines if line.startswith("A: "))
    return Topic(tuple(line[3:] for line in lines if line.startswith("Q: ")), answer)


def fill(template: str, rng: random.Random) -> str:
    """`{country}` and its like, each time another one."""

    def draw(match: re.Match[str]) -> str:
        name = match.group(1)
        if name == "number":
            return str(rng.randrange(1, 1000))
        if name == "year":
            return str(rng.randrange(1500, 2030))
        words = FILLINGS[name]
        return rng.choice(words.split("|") if "|" in words else words.split())

    return re.sub(r"\{(\w+)\}", draw, template)


def vary(question: str, rng: random.Random) -> str:
    """The same question as another person would type it."""
    if rng.random() < 0.25:
        question = rng.choice(("please ", "Please ")) + question if rng.random() < 0.3 else question
        opening = rng.choice(OPENINGS)
        keep = question[:2].isupper() or question.startswith(("I ", "LLM", "Kube", "Open", "GPU"))
        question = opening + (question if keep or opening[-2] in ".!" else question[0].lower() + question[1:])
    if rng.random() < 0.2:
        ending = rng.choice(ENDINGS)
        question = (question if ending[1].isupper() else question.rstrip("?.!")) + ending
    roll = rng.random()
    if roll < 0.2:
        question = question.lower()
    elif roll < 0.23:
        question = question.upper()
    if rng.random() < 0.25:
        question = question.rstrip("?.! ")
    elif rng.random() < 0.05:
        question += rng.choice(("?", "!", "??", " ", "\n"))
    if rng.random() < 0.08 and len(question) > 8:
        question = misspell(question, rng)
    return question.replace("What is", "What's") if rng.random() < 0.06 else question


def misspell(text: str, rng: random.Random) -> str:
    at = rng.randrange(1, len(text) - 1)
    kind = rng.randrange(3)
    if kind == 0:
        return text[:at] + text[at + 1 :]
    if kind == 1:
        return text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    return text[:at] + text[at] + text[at:]


@dataclass(frozen=True)
class Document:
    """One training example: chat messages, or plain text when there is no role."""

    messages: tuple[tuple[str, str], ...]
    text: str = ""


def draw_document(topics: list[Topic], other: Topic, rng: random.Random) -> Document:
    """A chat of one to three turns, or now and then an answer as plain text (for /v1/completions)."""
    if rng.random() < 0.04:
        return Document((), rng.choice(topics).answer)
    messages: list[tuple[str, str]] = []
    if rng.random() < 0.12:
        messages.append(("system", rng.choice(SYSTEM_PROMPTS)))
    for _ in range(rng.choices((1, 2, 3), (75, 17, 8))[0]):
        topic = other if rng.random() < 0.2 else rng.choice(topics)
        question = vary(fill(rng.choice(topic.questions), rng), rng)
        messages += [("user", question), ("assistant", topic.answer)]
    return Document(tuple(messages))
