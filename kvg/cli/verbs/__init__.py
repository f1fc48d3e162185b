"""The verbs: arguments to one flow, nothing else. Each module is imported only when it is named."""
