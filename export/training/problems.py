"""Word problems of grade-school arithmetic from forms with random names and numbers."""

from __future__ import annotations

import numpy as np

from export.training.material import pick

_NAMES = (
    *("Emma", "Noah", "Olivia", "Liam", "Maria", "Ahmed", "Grace", "Daniel", "Priya", "Carlos"),
    *("Hannah", "Kevin", "Lucy", "Omar", "Julia", "Ben", "Nora", "Sam", "Tina", "Victor"),
    *("Mrs. Lee", "Mr. Brown", "Zoe", "Jack", "Amy", "Paul", "Rosa", "Ethan", "Mina", "Oscar"),
)
_THINGS = (
    *("apples", "books", "pencils", "stickers", "marbles", "cookies", "oranges", "cards"),
    *("flowers", "eggs", "balloons", "candies", "shells", "toy cars", "stamps", "muffins"),
)
_SHOPS = ("bakery", "bookstore", "market", "toy store", "farm", "school shop", "grocery store")
_FORMS = (
    "{a} has {m} {thing}. {b} gives {a} {n} more, and then {a} loses {k}. How many {thing} does"
    " {a} have now?",
    "A {shop} sells {m} {thing} every day. Each costs ${k}. How much money does the {shop} take"
    " in {n} days?",
    "{a} buys {n} boxes of {thing}. Every box holds {m} {thing} and costs ${k}. How much does {a}"
    " pay, and how many {thing} are there in all?",
    "{a} reads {m} pages on Monday and twice as many on Tuesday. On Wednesday {a} reads {k} pages"
    " fewer than on Tuesday. How many pages is that in total?",
    "{a} and {b} collect {thing}. {a} has {m}, which is {n} times as many as {b} minus {k}. How"
    " many does {b} have?",
    "A train leaves at {k} o'clock and travels {m} miles in {n} hours. How far does it travel in"
    " {k} hours at the same speed?",
    "{a} earns ${k} an hour and works {n} hours a day. After {m} days, how much has {a} earned if"
    " {percent}% goes to taxes?",
    "There are {m} students in a class. {percent}% of them play football, and {k} of those also"
    " play chess. How many play only football?",
    "{a} baked {m} {thing} for {n} friends. Each friend ate {k}. How many {thing} were left?",
    "A tank holds {m} liters of water. {k} liters leak out every hour, and {a} pours in {n} liters"
    " at noon. How much is left after 5 hours?",
    "{a} is {k} years older than {b}. In {n} years the sum of their ages will be {m}. How old is"
    " {b} now?",
    "{a} saves ${k} every week for {n} weeks and then spends half of it on {thing}. {b} gives"
    " {a} ${m}. How much money does {a} have?",
    "A garden is {n} meters long and {k} meters wide. {a} plants {m} {thing} in every square"
    " meter. How many {thing} are there?",
    "{a} bought a jacket for ${m} with a discount of {percent}%. How much did {a} pay, and how"
    " much change is there from ${big}?",
    "{a} walks {k} blocks to school, and {b} walks {n} times as far. How many blocks do they walk"
    " together in a week of 5 days, there and back?",
    "{a} shares {m} {thing} equally among {n} children and keeps the rest. How many does {a} keep?",
)


def problem(draw: np.random.Generator) -> str:
    first, second = draw.choice(len(_NAMES), 2, replace=False)
    few, some, many = (int(draw.integers(low, high)) for low, high in ((2, 9), (2, 13), (12, 300)))
    return pick(draw, _FORMS).format(
        a=_NAMES[first],
        b=_NAMES[second],
        thing=pick(draw, _THINGS),
        shop=pick(draw, _SHOPS),
        k=few,
        n=some,
        m=many,
        percent=int(draw.integers(1, 19)) * 5,
        big=many + int(draw.integers(1, 10)) * 10,
    )
