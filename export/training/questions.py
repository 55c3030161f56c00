"""The forms in which the target is asked for something. All draw from the generator given."""

from __future__ import annotations

import numpy as np

from export.training.material import Material, chance, pick

_SUMMARY_FORMS = (
    "Summarize the following article:\n\n{text}",
    "Summarize this text in a few sentences:\n{text}",
    "{text}\n\nSummarize the text above.",
    "Give me a short summary of this article: {text}",
    "{text}\n\nTL;DR",
    "What are the main points of this news report?\n\n{text}",
)
_TRANSLATION_FORMS = (
    "Translate the following {language} sentence to English:\n{text}",
    "Translate this sentence from {language} to English: {text}",
    "What does this {language} sentence mean in English? {text}",
    "{language} to English: {text}",
)
_RETRIEVAL_FORMS = (
    "Context: {text}\n\nQuestion: {question}",
    "Answer the question based on the following passages.\n\n{text}\n\n{question}",
    "{text}\n\nUse the text above to answer: {question}",
    "Question: {question}\n\nDocuments:\n{text}\n\nAnswer:",
)
_NEWS_FORMS = (
    "Write a long news report about {subject} in {place}.",
    "Write a newspaper article about {subject}. It happened in {place}. Quote several people and"
    " give many details.",
    "Report about {subject} in {place} as a journalist would, in full detail.",
)
_NEWS_OPENINGS = (
    *("{capitals} -", "By our correspondent\n\n", "{Subject} has", "People in {place}"),
    *("It was", "The", ""),
)
_PASSAGE_FORMS = (
    "Write an encyclopedia article about {topic}.",
    "Write several paragraphs about {topic} for an encyclopedia, with names, dates and numbers.",
    "Write about the history and the importance of {topic} in the style of an encyclopedia.",
)
_QUESTION_OPENERS = (
    *("What", "What is", "What are", "How", "How did", "How does", "Why", "When", "When was"),
    *("Who", "Where", "Which", "How many", "Describe", "Explain why", "What was", "In what"),
)
_GENERAL_QUESTIONS = (
    "What is {topic} best known for?",
    "What is the history of {topic}?",
    "Why does {topic} matter?",
    "What does the text say about {topic}?",
    "How did {topic} begin?",
    "Name three facts about {topic}.",
)
_LANGUAGES = ("German", "French", "Spanish", "Italian")


def translation(draw: np.random.Generator, material: Material, german: str) -> str:
    """A request to translate `german`, or sometimes another language's sentence."""
    if chance(draw, 0.72):
        return f"Translate German to English: {german}"
    if chance(draw, 0.5):
        return pick(draw, _TRANSLATION_FORMS).format(language="German", text=german)
    language, text = pick(draw, material.foreign)
    if language == "English":
        return f"Translate English to {pick(draw, _LANGUAGES)}: {text}"
    if chance(draw, 0.5):
        return f"Translate {language} to English: {text}"
    return pick(draw, _TRANSLATION_FORMS).format(language=language, text=text)


def summary(draw: np.random.Generator, article: str) -> str:
    if chance(draw, 0.65):
        return f"Summarize: {article}"
    return pick(draw, _SUMMARY_FORMS).format(text=article)


def retrieval_form(draw: np.random.Generator) -> str:
    """With `{text}` and `{question}`."""
    return "{text}\n{question}" if chance(draw, 0.6) else pick(draw, _RETRIEVAL_FORMS)


def question_opener(draw: np.random.Generator) -> str:
    """The first words of a question about a text, which the target ends."""
    return pick(draw, _QUESTION_OPENERS)


def general_question(draw: np.random.Generator, topic: str) -> str:
    return pick(draw, _GENERAL_QUESTIONS).format(topic=topic)


def fact_opener(draw: np.random.Generator, material: Material) -> str:
    """The first words of a short question, which the target ends."""
    opener = pick(draw, material.facts)
    return opener if chance(draw, 0.4) else capitalised(opener)


def news(draw: np.random.Generator, material: Material) -> tuple[str, str]:
    """A request for a news report, and the words the report begins with."""
    subject, place = pick(draw, material.news), pick(draw, material.places)
    request = pick(draw, _NEWS_FORMS).format(subject=subject, place=place)
    opening = pick(draw, _NEWS_OPENINGS).format(
        Subject=capitalised(subject), place=place, capitals=place.upper()
    )
    return request, opening


def passage(draw: np.random.Generator, topic: str) -> tuple[str, str]:
    """A request for an encyclopedia's article on `topic`, and the words it begins with."""
    request = pick(draw, _PASSAGE_FORMS).format(topic=topic)
    return request, capitalised(topic) if chance(draw, 0.7) else ""


def capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]
