def check(answer, text):
    words, word = [], ""
    for char in text + " ":
        if char == " ":
            words.insert(0, word)
            word = ""
        else:
            word += char.upper()
    return answer == " ".join(words)
