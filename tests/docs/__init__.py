"""The documentation as a thing to be built and tested: its pages, the parts that are generated, and the site."""
