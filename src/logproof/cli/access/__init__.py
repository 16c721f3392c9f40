"""The commands that ask one endpoint: prompts and options go in; tables of tokens, texts and facts are printed."""
