"""Pages for what people do about reviews other than signing them."""
