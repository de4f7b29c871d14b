"""The mirror's password changes while it copies, in either order."""

from __future__ import annotations

import random
import secrets
import time
from typing import Final

from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.campaign.layout import MIRROR_USER, write_password
from tests.campaign.operations.kind import Detail, Kind
from tests.campaign.world import World

_TIMEOUT_S: Final = 30.0


def rotate(world: World, chance: random.Random) -> Detail:
    """The file first or the cluster first; then every connection has to log in again."""
    alias, file_first = chance.choice("AB"), chance.random() < 0.5
    number = world.next_number()
    word = world.remember(f"password {number} on {alias}", f"word-{secrets.token_hex(8)}")
    between_s = chance.uniform(0.0, 3.0)

    def both_have_it() -> None:
        _set(world, alias, word)
        write_password(world.folder, alias, word)

    # Whatever comes in between: the two must not stay apart.
    world.later(between_s + 1.0, f"{alias} and the file may have other passwords", both_have_it)
    if file_first:
        write_password(world.folder, alias, word)
        time.sleep(between_s)
        _set(world, alias, word)
    else:
        _set(world, alias, word)
        time.sleep(between_s)
        write_password(world.folder, alias, word)
    if chance.random() < 0.5:
        for proxy in world.proxies[alias]:
            proxy.cut()
    return {"cluster": alias, "file_first": file_first, "between_s": round(between_s, 1)}


def _set(world: World, alias: str, word: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    wanted = [UserScramCredentialUpsertion(MIRROR_USER, info, word.encode())]
    answers = world.admins[alias].alter_user_scram_credentials(wanted)
    for answer in answers.values():
        answer.result(_TIMEOUT_S)


KINDS: Final = (Kind(name="rotate-password", family="credentials", perform=rotate),)
