"""The words the rules go by, English and Chinese, apart from their code. Chinese is in simplified characters."""
