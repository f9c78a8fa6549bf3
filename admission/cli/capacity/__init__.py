"""`muster capacity`: how many more gangs would start."""
