"""How conversations of each kind of use come about. `SCRIPTS` lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from export.training import problems, questions, texts
from export.training.desk import GREEDY, INVENTING, Ask, Desk, Exchange, Script, Text
from export.training.german import german_sentence
from export.training.material import chance, pick
from export.training.speech import Ids

ARTICLE, PASSAGE, TEXT = "article", "passage", "text"
_LEAST_WORDS = 60
_MOST_QUESTION = 40
_MOST_GERMAN = 220
_MOST_ARTICLE_WORDS = 900


def chat(desk: Desk) -> Script[None]:
    """An open request; a third have a second turn."""
    opener = pick(desk.draw, desk.material.openers) if chance(desk.draw, 0.6) else ""
    turn = yield from desk.invented(desk.speech.turn_begun(opener))
    if turn is None:
        return
    exchange = yield from _asked(desk, (opener + turn).strip())
    if exchange is not None and chance(desk.draw, 0.33):
        exchange = yield from _followed(desk, exchange)
    if exchange is not None:
        desk.keep("chat", exchange)


def translation(desk: Desk) -> Script[None]:
    sentences = [german_sentence(desk.draw, desk.material)]
    if chance(desk.draw, 0.03):
        sentences = yield from _more_german(desk)
    for sentence in sentences:
        turn = questions.translation(desk.draw, desk.material, sentence)
        exchange = yield from _asked(desk, turn)
        if exchange is not None:
            desk.keep("translation", exchange)


def summary(desk: Desk) -> Script[None]:
    """An article of its own, older ones behind it where it is short, summarised in two ways."""
    request, opening = questions.news(desk.draw, desk.material)
    most = pick(desk.draw, (300, 450, 600, 800))
    article = yield from _composed(desk, ARTICLE, request, opening, most)
    if article is None:
        return
    wanted = int(desk.draw.integers(100, 700))
    articles = [article]
    while sum(len(each.text.split()) for each in articles) < wanted:
        other = desk.taken(ARTICLE)
        if other is None or other.text in (each.text for each in articles):
            break
        articles.append(other)
    desk.shelf.add(ARTICLE, desk.held, article)
    joined = " ".join(_pasted(desk, each) for each in articles)
    text = texts.first_words(joined, _MOST_ARTICLE_WORDS)
    for _ in range(2):
        yield from _answered_twice(desk, "summary", questions.summary(desk.draw, text))


def facts(desk: Desk) -> Script[None]:
    opener = questions.fact_opener(desk.draw, desk.material)
    question = yield from _question(desk, "", opener)
    if question is None:
        topic = pick(desk.draw, pick(desk.draw, desk.material.topics))
        question = questions.general_question(desk.draw, topic)
    if chance(desk.draw, 0.15):
        question = question.lower().removesuffix("?")
    exchange = yield from _asked(desk, question)
    if exchange is not None:
        desk.keep("facts", exchange)


def maths(desk: Desk) -> Script[None]:
    """Half of the problems are the target's own after their first sentence or half of it."""
    problem: str | None = problems.problem(desk.draw)
    if problem is not None and chance(desk.draw, 0.55):
        beginning = texts.beginning(problem, pick(desk.draw, (0.5, 1.0)))
        written = yield from desk.invented(desk.speech.turn_begun(beginning))
        problem = texts.whole_problem(beginning + written) if written else None
    if problem is None:
        return
    exchange = yield from _asked(desk, problem)
    if exchange is not None:
        desk.keep("maths", exchange)


def retrieval(desk: Desk) -> Script[None]:
    """Passages on related topics, cut somewhere as retrievers do, and questions about them."""
    topics = pick(desk.draw, desk.material.topics)
    passages: list[Text] = []
    wanted = int(desk.draw.integers(200, 750))
    while sum(len(each.text.split()) for each in passages) < wanted:
        passage = yield from _passage(desk, pick(desk.draw, topics))
        if passage is None or passage.text in (each.text for each in passages):
            break
        passages.append(passage)
    if not passages:
        return
    separator = " " if chance(desk.draw, 0.6) else "\n\n"
    joined = separator.join(_pasted(desk, passage) for passage in passages)
    text = texts.first_words(joined, wanted)
    # One form for all: so they share their beginning, which then is read only once.
    form = questions.retrieval_form(desk.draw)
    for _ in range(3):
        question = yield from _question_about(desk, text, pick(desk.draw, passages).topic)
        turn = form.format(text=text, question=question)
        yield from _answered_twice(desk, "retrieval", turn)


def free_text(desk: Desk) -> Script[None]:
    """For a target without a chat template: any text, from its first words on."""
    topic = pick(desk.draw, pick(desk.draw, desk.material.topics))
    beginnings = (
        pick(desk.draw, desk.material.openers),
        questions.news(desk.draw, desk.material)[1] or "The",
        questions.capitalised(topic),
        questions.capitalised(pick(desk.draw, desk.material.facts)),
        german_sentence(desk.draw, desk.material),
        problems.problem(desk.draw),
    )
    prompt = desk.speech.encode(pick(desk.draw, beginnings))
    exchange = yield from desk.answered(prompt, desk.manner())
    if exchange is not None:
        desk.keep(TEXT, exchange)


SCRIPTS: Mapping[str, Callable[[Desk], Script[None]]] = {
    "chat": chat,
    "translation": translation,
    "summary": summary,
    "facts": facts,
    "maths": maths,
    "retrieval": retrieval,
}


def _asked(desk: Desk, turn: str) -> Script[Exchange | None]:
    if not desk.speech.is_plain(turn):
        return None
    prompt = desk.speech.question([{"role": "user", "content": turn}])
    return (yield from desk.answered(prompt, desk.manner()))


def _answered_twice(desk: Desk, kind: str, turn: str) -> Script[None]:
    """Long prompts are dear: most get a sampled answer beside the greedy one."""
    prompt = desk.speech.question([{"role": "user", "content": turn}])
    manners = (GREEDY, desk.sampled()) if chance(desk.draw, 0.6) else (desk.manner(),)
    for manner in manners:
        exchange = yield from desk.answered(prompt, manner)
        if exchange is not None:
            desk.keep(kind, exchange)


def _followed(desk: Desk, first: Exchange) -> Script[Exchange]:
    """`first` with another turn, where one comes about."""
    turn: str | None = pick(desk.draw, desk.material.followups)
    if chance(desk.draw, 0.5):
        turn = yield from desk.invented(desk.speech.next_turn_begun(first.ids))
    if turn is None:
        return first
    prompt = desk.speech.next_turn(first.ids, turn.strip())
    second = yield from desk.answered(prompt, desk.manner())
    return first if second is None else Exchange(second.ids, first.spans + second.spans)


def _composed(
    desk: Desk, kind: str, request: str, opening: str, most: int, topic: str = ""
) -> Script[Text | None]:
    """A text to be asked about, kept as a conversation too; None where too little came."""
    prompt = desk.speech.answer_begun(request, opening)
    exchange = yield from desk.continued(Ask(prompt, most, INVENTING))
    if exchange is None:
        return None
    desk.keep(kind, exchange)
    text = texts.before_repeating(opening + desk.speech.decode(exchange.ids[len(prompt) :]))
    if len(text.split()) < _LEAST_WORDS or not desk.speech.is_plain(text):
        return None
    return Text(text, topic)


def _passage(desk: Desk, topic: str) -> Script[Text | None]:
    known = desk.taken(PASSAGE) if chance(desk.draw, 0.6) else None
    if known is not None:
        return known
    request, opening = questions.passage(desk.draw, topic)
    most = pick(desk.draw, (250, 350, 500))
    written = yield from _composed(desk, PASSAGE, request, opening, most, topic)
    if written is not None:
        desk.shelf.add(PASSAGE, desk.held, written)
    return written


def _pasted(desk: Desk, text: Text) -> str:
    return texts.flatten(text.text, " " if chance(desk.draw, 0.75) else "\n")


def _question(desk: Desk, before: str, opener: str) -> Script[str | None]:
    """A question that the target ends; it sees `before`, in the same turn."""
    prompt: Ids = desk.speech.turn_begun(before + opener)
    written = yield from desk.invented(prompt, _MOST_QUESTION)
    return texts.first_question(opener + written) if written else None


def _question_about(desk: Desk, text: str, topic: str) -> Script[str]:
    """By the target, or a general one."""
    question: str | None = None
    if chance(desk.draw, 0.8):
        opener = questions.question_opener(desk.draw)
        question = yield from _question(desk, f"{text}\n", opener)
    return question or questions.general_question(desk.draw, topic or "this")


def _more_german(desk: Desk) -> Script[list[str]]:
    """Sentences in the manner of some that are shown: the target's German is poor but its own."""
    shown = "".join(f"- {german_sentence(desk.draw, desk.material)}\n" for _ in range(4))
    prompt = desk.speech.encode(f"Deutsche Nachrichten, ein Satz pro Zeile:\n{shown}-")
    written = yield from desk.invented(prompt, _MOST_GERMAN)
    items = texts.list_items(written or "")
    return [item for item in items if 20 <= len(item) <= 300][:5]
