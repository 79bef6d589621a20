"""Models, one architecture per file: configuration, `hidden(batch)`, `head(hidden)`. MODELS maps names to classes."""

from torch import nn

from clearformer.registry import Table

MODELS: Table[type[nn.Module]] = Table(
    "model",
    {
        "alexnet": "clearformer.models.alexnet:AlexNet",
        "autoencoder": "clearformer.models.autoencoder:Autoencoder",
        "bert": "clearformer.models.bert:Bert",
        "birnn": "clearformer.models.birnn:BiRNN",
        "classifier": "clearformer.models.classifier:Classifier",
        "googlenet": "clearformer.models.googlenet:GoogLeNet",
        "gpt": "clearformer.models.gpt:GPT",
        "resnet": "clearformer.models.resnet:ResNet",
        "rnn-lm": "clearformer.models.rnn:RNN",
        "seq2seq": "clearformer.models.seq2seq:Seq2Seq",
        "speech-rnn": "clearformer.models.speech_rnn:SpeechRNN",
        "speech-transformer": "clearformer.models.speech_transformer:SpeechTransformer",
        "t5": "clearformer.models.t5:T5",
        "textcnn": "clearformer.models.textcnn:TextCNN",
        "transformer": "clearformer.models.transformer:Transformer",
        "vgg": "clearformer.models.vgg:VGG",
        "vit": "clearformer.models.vit:ViT",
    },
)
