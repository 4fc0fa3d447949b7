"""Servers of others boot our image: Nova's rescue puts it in front of their disks as a CD.

That is how a server which others made boots anything but its disk. Its own devices stay (a "stable
device rescue", by properties of the image), but SeaBIOS boots no disk of a rescued server, for none
is in its boot order: so a server that boots its disk is not rescued any more. Nova does not stop,
reboot or rescue a rescued server: it is unrescued before, which starts its disk for a moment.

https://docs.openstack.org/nova/latest/user/rescue.html
"""

from __future__ import annotations

from uuid import UUID

from nospoon.errors import Conflict, Gone, HostUnreachable, ProviderError
from nospoon.model.machine import PowerState
from nospoon.providers.answers import How
from nospoon.providers.openstack.actions import POWER, STARTED_BY, Actions, Settled
from nospoon.providers.openstack.adopted import of_its_owner
from nospoon.providers.openstack.images import BootImageDriver
from nospoon.providers.openstack.roster import Server

RESCUE = 600
"""Pauses within which Nova shuts a guest down and starts the image."""
OF_VOLUMES = "2.87"
"""Microversion (Ussuri) from which Nova rescues a server whose root disk is a volume."""


class Rescue:
    def __init__(self, actions: Actions, images: BootImageDriver) -> None:
        self._actions, self._images = actions, images

    async def enter(self, machine: UUID) -> Server:
        """It boots our image now, whatever it did before. Raises `ProviderError` where Nova does
        not do that.
        """
        server = await self.leave(machine)
        image = await self._images.id_for(server.shape.firmware, server.tagged.tag.cluster)
        if server.status in STARTED_BY:
            await self._actions.act(machine, {STARTED_BY[server.status]: None})
            await self._actions.until(machine, lambda each: each.status == "ACTIVE", POWER)
        how: How = {"microversion": OF_VOLUMES} if server.has_root_volume else {}
        try:
            await self._actions.act(machine, {"rescue": {"rescue_image_ref": image}}, **how)
        except (HostUnreachable, Gone):
            raise
        except ProviderError as error:
            volume = ", whose root disk is a volume" if server.has_root_volume else ""
            raise of_its_owner(
                server.shape.adopted,
                f"Nova does not rescue it{volume} ({error})",
                "Set its boot device to disk: `nospoon node boot NODE disk`.",
            ) from error
        now = await self._actions.until(machine, Settled(lambda each: each.is_rescued), RESCUE)
        if now.power is not PowerState.ON:
            raise ProviderError(
                f"server {now.id} was not rescued: it is {now.status} again",
                hint="Nova's log of its host says why.",
            )
        return now  # or it has asked already, and starts its disk

    async def leave(self, machine: UUID) -> Server:
        """It boots its own disk now, if it was rescued."""
        server = await self._actions.must(machine)
        if not server.is_rescued:
            return server
        try:
            await self._actions.act(machine, {"unrescue": None})
        except Conflict:  # someone else did meanwhile
            if (await self._actions.must(machine)).is_rescued:
                raise
        return await self._actions.until(machine, lambda each: not each.is_rescued, POWER)
