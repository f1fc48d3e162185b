"""Models: fingerprints, exact execution, sessions. The only home of torch and transformers."""
