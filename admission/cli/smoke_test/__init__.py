"""The command `muster smoke-test`: a gang without devices, admitted by an installation and deleted again."""
