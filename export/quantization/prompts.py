"""What the model is asked to write about: to be calibrated on and, apart from that, judged by."""

from __future__ import annotations

CALIBRATION = (
    "Explain how a bicycle stays upright when it moves.",
    "Write a short story about a lighthouse keeper and a lost bird.",
    "What were the main causes of the French Revolution?",
    "Give me a recipe for vegetable soup, step by step.",
    "Write a Python function that returns the n-th Fibonacci number and explain it.",
    "A train travels 120 km in 2 hours and then 90 km in 1 hour. What is its average speed?",
    "Summarize the plot of Romeo and Juliet in five sentences.",
    "Translate to French: The weather is nice today and we are going to the park.",
    "List ten ideas for a birthday party for a child who likes dinosaurs.",
    "Write an email to a colleague asking to move a meeting to Thursday afternoon.",
    "What is photosynthesis, and why is it important for life on Earth?",
    "Compare electric cars and petrol cars in a table of advantages and disadvantages.",
    "Write a poem about the sea in autumn.",
    "How can I sleep better? Give practical advice.",
    "Which names and dates are in this text? Marie Curie was born on 7 November 1867 in Warsaw"
    " and died on 4 July 1934 in Passy.",
    "Write a JSON object that describes a book with title, author, year and chapters.",
)
HELD_OUT = (
    "Why is the sky blue during the day and red in the evening?",
    "Write a product description for a wooden desk lamp.",
    "How do vaccines protect us from diseases?",
    "Plan a three-day visit to Lisbon for a family with two children.",
    "Write a SQL query that counts the orders of each customer in 2023.",
    "If five machines make five parts in five minutes, how long do 100 machines need for 100?",
    "Rewrite this sentence in a formal tone: can you get me those numbers by tomorrow?",
    "Translate to German: Where is the nearest railway station, please?",
    "What are the differences between a virus and a bacterium?",
    "Write a dialogue between a teacher and a student about climate change.",
    "Describe how a search engine finds the pages it shows.",
    "Summarize: Bees collect nectar, make honey and pollinate plants. Without them many crops"
    " would fail, and food would become more expensive.",
    "Give me five tips for a job interview.",
    "Write a shell script that renames all .txt files in a folder to .md.",
    "Who was Leonardo da Vinci and what is he known for?",
    "Invent a board game about exploring the deep sea and explain its rules.",
)
