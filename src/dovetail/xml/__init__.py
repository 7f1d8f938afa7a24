"""XQuery over collections of XML files: language, plans, and their execution in parallel."""
