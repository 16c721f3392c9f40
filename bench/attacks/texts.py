"""The prompts of the attack bench: written here, so that nothing is downloaded and anyone gets the same ones.

Each is a question of one of twenty kinds about one of 72 topics, in SmolLM2's chat format. Every fourth holds a page of
notes before the question, so that long prompts occur in honest and dishonest records alike.
"""

from __future__ import annotations

import random

SYSTEM = "You are a helpful assistant who answers at length and in plain words."
OTHER_SYSTEM = "You are a sarcastic pirate. Answer every question as a pirate would, with jokes."

_KINDS = (  # the first ten are those of the first ten times 72 prompts, the others those of the rest
    "Write a long story for children about {}.",
    "Explain how {} works to somebody who has never heard of it.",
    "What should a beginner know about {}? Give many examples.",
    "Write a letter to a friend in which you describe {}.",
    "Compare {} today with {} a hundred years ago.",
    "Plan a week of lessons about {} for a school class.",
    "Write a dialogue between two experts who disagree about {}.",
    "List the ten most common mistakes people make with {} and how to avoid them.",
    "Write a detailed encyclopedia article about {}.",
    "Invent a small company that earns its money with {} and describe its first year.",
    "Tell the history of {} from the beginning until now.",
    "Write a speech that persuades a town to spend more on {}.",
    "What would the world look like without {}? Describe an ordinary day.",
    "Interview somebody who has spent a life with {}. Ask eight questions and answer them.",
    "Write a review of a film about {} that does not exist.",
    "Describe {} to a blind person as vividly as you can.",
    "Make up five riddles about {} and explain the answers.",
    "Which myths about {} are false, and where do they come from?",
    "Write the diary of a week in which {} changed everything.",
    "Draw up a budget and a timetable for a festival about {}.",
)
_LIST = (
    "bread baking|beekeeping|lighthouses|chess|the tides|volcanoes|bicycles|paper making|river ferries|radio|clocks|"
    "glass blowing|mountain railways|public libraries|the moon|coffee|gardens on roofs|bridges|maps|opera|weather|"
    "sailing boats|wool|vaccines|earthquakes|kites|wells|castles|pottery|satellites|cheese|street markets|windmills|"
    "forests|the postal service|puppets|ice skating|salt|orchards|tunnels|whales|umbrellas|school buses|fireworks|"
    "elevators|deserts|choirs|fishing nets|solar panels|hospitals|soap|carpets|museums|telescopes|rice fields|robots|"
    "swimming|newspapers|perfume|dams|circus tents|honey|trams|fossils|vineyards|ports|caves|toys|canals|bakeries|"
    "snow|theatres"
)
_TOPICS = tuple(_LIST.split("|"))
_NOTES = (
    "In the first year nobody took {} seriously.",
    "An old report says that {} cost more than the whole harbour.",
    "Three families had worked with {} for generations.",
    "The council discussed {} on a cold evening in March.",
    "Since then the number of people who care about {} has doubled.",
    "A visitor from abroad wrote that {} had changed her view of the town.",
    "The price rose twice, fell once, and has been stable since.",
    "Most of the tools were kept in a shed behind the mill.",
    "Two engineers measured everything again and found an error of a tenth.",
    "The teacher kept a diary, of which eleven pages are left.",
    "Nobody can say today who had the idea first.",
    "In summer the work began at five, in winter at eight.",
    "A fire destroyed the records of four years.",
    "The new rules were printed on yellow paper and hung on every door.",
)
_BLOCK = len(_KINDS) // 2
MOST = len(_KINDS) * len(_TOPICS)


def question(i: int) -> tuple[str, str]:
    """(notes, question) of prompt i, 0 .. MOST - 1; notes are empty for three of four. Each i is another prompt."""
    if not 0 <= i < MOST:
        raise ValueError(f"prompt {i}; there are {MOST}")
    topic = _TOPICS[i % len(_TOPICS)]
    kinds = _KINDS[:_BLOCK] if i < _BLOCK * len(_TOPICS) else _KINDS[_BLOCK:]
    asked = kinds[(i // len(_TOPICS) + i) % _BLOCK].replace("{}", topic)
    if i % 4:
        return "", asked
    lines = random.Random(i).sample(_NOTES, 10)
    return " ".join(lines).replace("{}", topic), asked


def cut(notes: str) -> str:
    """The notes without their first half: what a server that saves context would leave."""
    lines = notes.split(". ")
    return ". ".join(lines[len(lines) // 2 :])


def chat(system: str, notes: str, asked: str) -> str:
    """The prompt as SmolLM2's template writes it, up to where the answer begins."""
    user = f"{notes}\n\n{asked}" if notes else asked
    turns = (("system", system), ("user", user))
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns) + "<|im_start|>assistant\n"
