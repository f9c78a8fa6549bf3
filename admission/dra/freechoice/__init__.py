"""The search for a gang's nodes where Muster chooses the devices."""

__all__ = ["bin_packing", "free_fits", "search"]
