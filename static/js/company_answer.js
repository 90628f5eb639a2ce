// The way back from the provider of the company: a person who has no scripts presses the button.
document.getElementById('answer').submit();
