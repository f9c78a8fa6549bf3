"""`muster submit`: a Job in a queue from an image, a command and the devices that it needs."""
