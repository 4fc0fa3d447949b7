"""The probe: a tiny ramdisk of ours that tells what hardware it finds, and the reading of it."""
