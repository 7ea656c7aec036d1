"""A small Llama trained from its configuration by Hugging Face's Trainer, on made-up tokens."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Tokens(Dataset):
    """Random sentences of 256 tokens."""

    def __len__(self):
        return 400

    def __getitem__(self, index):
        tokens = torch.randint(0, 8000, (256,))
        return {"input_ids": tokens, "labels": tokens}


def main():
    config = LlamaConfig(
        vocab_size=8000,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=8,
            num_train_epochs=1,
            bf16=True,
            logging_steps=10,
            save_strategy="no",
            report_to="none",
        )
        Trainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=Tokens()).train()
    print("peak", torch.cuda.max_memory_allocated())


if __name__ == "__main__":
    main()
