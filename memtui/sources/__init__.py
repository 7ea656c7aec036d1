"""Where figures come from: the agent's socket, the driver, the host, a recorded file."""
