"""Views that look inside no run: they build and measure small networks of their own; `inspect.VIEWS` names them."""
