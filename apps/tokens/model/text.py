"""The text from which the model learns: questions and answers, and short stories, made by rules."""

import random

# What a thing is, and what it does: "a ring" is "memory that ..." and "...".
THINGS = {
    "ring": ("memory that two programs share", "carries the bytes of one direction"),
    "kernel": ("a program that runs on a GPU", "opens sockets like any other program"),
    "proxy": ("a program on the host", "moves bytes between rings and the network"),
    "block": ("a group of threads", "makes every call together"),
    "lane": ("one thread of a block", "copies its share of the bytes"),
    "socket": ("two rings and four words", "joins two programs"),
    "stream": ("a row of bytes that keeps its order", "ends when both sides are closed"),
    "listener": ("a socket that waits for others", "hands each connection to a block"),
    "packet": ("a small piece of a message", "travels over the network"),
    "word": ("a number that one side writes", "tells the other side what has happened"),
    "bell": ("a word that wakes a block", "rings when there is work"),
    "queue": ("a row of things to do", "gives the oldest one first"),
    "token": ("one byte of text", "comes after all the tokens before it"),
    "batch": ("a set of rows", "is computed in one step"),
    "cache": ("memory for keys and values", "saves the model from reading a text again"),
    "barrier": ("a place where threads meet", "lets them go on when all have come"),
    "server": ("a program that answers", "waits for the next request"),
    "client": ("a program that asks", "reads the answer as it comes"),
    "byte": ("eight bits", "is the smallest thing that a stream carries"),
    "model": ("a function with many numbers", "guesses the next token"),
    "GPU": ("a machine with many threads", "works on all rows at the same time"),
    "network card": ("a device that reads memory", "sends what it finds to another machine"),
}
QUESTIONS = ["What is {a}?", "What does {a} do?", "Tell me about {a}.", "Please explain {a}."]
GREETINGS = {
    "Hello!": "Hello! What would you like to know?",
    "Hi.": "Hello! What would you like to know?",
    "Good morning.": "Good morning! Ask me about sockets.",
    "Who are you?": "I am a small model that runs in one block of a GPU.",
    "How are you?": "I am well. My ring is empty and my queue is short.",
    "Thank you.": "You are welcome.",
    "Thanks!": "You are welcome.",
    "Goodbye.": "Goodbye! I close the stream.",
}
HEROES = ["packet", "token", "byte", "client", "kernel", "lane"]
ADJECTIVES = ["small", "quick", "tired", "brave", "lost", "patient", "curious"]
PLACES = ["the ring", "the network", "a GPU", "the proxy", "a long queue", "the cache", "a quiet block"]
MEETINGS = ["a bell", "a server", "a socket", "a listener", "another stream", "a barrier"]
ADVICE = ["Wait for the word", "Keep your order", "Take the next slot", "Follow the bytes", "Close the stream"]
ENDS = [
    "And so it came home before the deadline.",
    "Nobody was lost, and the stream was closed.",
    "Then the bell rang, and all threads went on.",
    "At last the answer came, and the queue was empty.",
]


def article(thing):
    return ("an " if thing[0] in "aeiou" else "a ") + thing


def answer(thing, form):
    is_a, does = THINGS[thing]
    name = article(thing).capitalize() if thing != "GPU" else "A GPU"
    if form == 1:
        return f"{name} {does}."
    return f"{name} is {is_a}. It {does}."


def dialogue(rng):
    turns = []
    for _ in range(rng.choice([1, 1, 2])):
        if rng.random() < 0.25:
            said, answered = rng.choice(sorted(GREETINGS.items()))
        else:
            thing, form = rng.choice(sorted(THINGS)), rng.randrange(len(QUESTIONS))
            said, answered = QUESTIONS[form].format(a=article(thing)), answer(thing, form)
        turns.append(f"User: {said}\nAssistant: {answered}\n")
    return "".join(turns)


def story(rng):
    adjective, hero = rng.choice(ADJECTIVES), rng.choice(HEROES)
    here, there = rng.sample(PLACES, 2)
    meeting, advice = rng.choice(MEETINGS), rng.choice(ADVICE)
    return (
        f"Once upon a time there was {article(adjective)} {hero}. It lived in {here} and wanted to see {there}. "
        f'On its way it met {meeting}. "{advice}," said {meeting.replace("another", "the other").replace("a ", "the ", 1)}. '
        f"The {hero} did so, and soon it saw {there}. {rng.choice(ENDS)}\n"
    )


def corpus(seed, length):
    """Returns about `length` bytes of texts; each begins after a zero byte."""
    rng, parts, size = random.Random(seed), [], 0
    while size < length:
        text = "\0" + (story(rng) if rng.random() < 0.35 else dialogue(rng))
        parts.append(text)
        size += len(text)
    return "".join(parts).encode() + b"\0"
