"""What a run costs: seconds, memory, traffic; and which share of Θ it trained."""
