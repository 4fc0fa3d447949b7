"""Run by the environment's Python: Ironic's API and conductor in one process.

Ironic 39 derives a key of a BMC's password, 600,000 rounds of PBKDF2, at every request of Redfish
that it makes, for the name of the session that it keeps (`SessionCache` of
drivers/modules/redfish/utils.py): a third of a second of a processor, and most of what a conductor
takes. Here it is derived once for each BMC and password.
"""

from __future__ import annotations

import hashlib
import sys
from functools import lru_cache

from ironic.command.singleprocess import main

hashlib.pbkdf2_hmac = lru_cache(maxsize=4096)(hashlib.pbkdf2_hmac)  # type: ignore[assignment]

if __name__ == "__main__":
    sys.exit(main())
