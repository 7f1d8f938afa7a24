"""The experiments of the online joins: shares of results that come while rows arrive, and rows that wait in pauses."""
